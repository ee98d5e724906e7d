"""Program → plan: the passes, the groups they form, and how a group becomes a kernel."""
