"""Windows around each element: blur, derivatives, any filter."""
