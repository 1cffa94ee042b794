"""Memorizing Transformers (Wu, Rabe, Hutchins, Szegedy; arXiv 2203.08913).

Not built yet: only the paper's reported numbers are here, in results/reported.
"""
