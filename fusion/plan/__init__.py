"""Program → plan: the passes, the groups they form, and the lowering of groups to kernels."""
