"""Other libraries' views of the same kernels: what they call a tactic, and how to name one to them.

Nothing here imports those libraries at module level; what is said of them names the release it was read in.
"""
