"""Work on a stream of one's own, handed over to torch without a manual synchronisation.

Without a GPU it says so and ends; NDD_GPU=simulate makes it run in Triton's interpreter.
"""

from __future__ import annotations

from data import arguments, folder

import ndd


def own_stream():
    """A stream of torch's, where torch has a GPU; else one of ours (a queue, when simulated)."""
    import torch

    return torch.cuda.Stream() if torch.cuda.is_available() else ndd.stream()


def main() -> None:
    chosen = arguments(__doc__, per_class=2, size=32).parse_args()
    if ndd.EvalContext.current().device_id is None:
        print("skipped: no GPU here; NDD_GPU=simulate runs this in Triton's interpreter")
        return
    stream = own_stream()
    reader = ndd.readers.File(file_root=folder(chosen))
    with ndd.EvalContext(cuda_stream=stream) as context:
        for jpegs, _ in reader.next_epoch(batch_size=3):
            x = ndd.resize(ndd.decoders.image(jpegs, device="gpu"), size=[24, 24])
            images = (x * (1 / 255)).torch()  # torch's current stream waits for ours, the host not
            print(f"{tuple(images.shape)} on {context.cuda_stream}: mean {images.mean():.3f}")


if __name__ == "__main__":
    main()
