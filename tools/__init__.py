"""Tools of the checkout; no part of the product."""
