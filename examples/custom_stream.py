"""Work on your own stream and hand results to torch without manual synchronisation.

Without a GPU the program says so and ends; NDD_GPU=simulate runs it in Triton's interpreter.
"""

from __future__ import annotations

from data import arguments, folder

import ndd


def own_stream():
    """A torch stream if torch has a GPU; else one of ours (a queue, when simulated)."""
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
            images = (x * (1 / 255)).torch()  # torch's stream waits for ours; the host does not
            print(f"{tuple(images.shape)} on {context.cuda_stream}: mean {images.mean():.3f}")


if __name__ == "__main__":
    main()
