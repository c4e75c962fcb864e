"""Sums of products: many that become one, and long ones that many threads share."""
