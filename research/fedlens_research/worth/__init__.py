"""What runs say of their own worth, held against what students and a judge say of them."""
