"""Widgets of our own: a sprite grid and a labelling desk, plain JavaScript shipped in the wheel.

Each is registered once, at import; their scripts talk to no server but the page's own, and put
text on the page as text, never as HTML.
"""
