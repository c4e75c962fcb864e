"""Rewriting for matrix and dot-product instructions: a sum of products becomes MMA. Choosing them is `opt/`."""
