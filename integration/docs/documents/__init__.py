"""The documents of this repository: the examples in them, the links between them, and the site made of them."""
