"""Matrix and dot-product instructions as data: types, sizes, which thread holds which element. No rewriting."""
