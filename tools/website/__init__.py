"""The documentation site: what stands in the repository, and a page for each operator, made from its contract.

    make docs            builds it into site/, with every warning an error; open site/index.html
    make docs-serve      shows it while you write

`pages.pages()` is the whole site as text, and needs nothing but aclgrad; MkDocs turns it into HTML, told by `hooks.py`
alone. Nothing that is generated is committed.
"""
