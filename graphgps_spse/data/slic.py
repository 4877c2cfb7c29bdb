"""Superpixels of small images by SLIC, as scikit-image computed them when the benchmark was made in 2019.

Today's scikit-image rescales every image to its own range, and takes the bounds on a segment's size from the number of
segments that it starts from, not from the number that was asked for. Both are undone here through its arguments.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from graphgps_spse.data.superpixels import SuperpixelSums


class SlicRecipe(NamedTuple):
    """How the benchmark cut one kind of image."""

    side: int
    """Pixels of a row and of a column."""
    max_segments: int
    first_request: int
    """Segments that are asked for at first; one less each time until no more than `max_segments` come out."""
    compactness: float


def recipe_of(name: str) -> SlicRecipe:
    """Return the recipe of MNIST or CIFAR10."""
    return {"MNIST": SlicRecipe(28, 75, 95, 0.25), "CIFAR10": SlicRecipe(32, 150, 200, 10.0)}[name]


def segment_image(image_HWC: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """Return the superpixel of each pixel, [H, W] from 0, of an image of uint8 with 1 or 3 channels.

    Colours are compared in Lab. All is float32; scikit-image went on in float64 then, which cuts about one image of
    MNIST in a hundred in another way.
    """
    from skimage.color import rgb2lab  # here, as its import takes long and few runs need it
    from skimage.segmentation import slic
    from skimage.util import regular_grid

    height, width, num_channels = image_HWC.shape
    values = (image_HWC / 255.0).astype(np.float32)
    values = rgb2lab(values) if num_channels == 3 else values
    spread = float(values.max() - values.min()) or 1.0
    done: tuple[int, int, int] | None = None
    for request in range(recipe.first_request, 0, -1):
        grid = regular_grid((1, height, width), request)
        num_centres = int(np.prod([len(range(size)[part]) for size, part in zip((1, height, width), grid)]))
        asked = height * width / request  # pixels of a segment, if they were all of a size
        arguments = num_centres, int(0.5 * asked), int(3 * asked)
        if arguments == done:
            continue  # the result would be the same
        done, actual = arguments, height * width / num_centres
        segments = slic(
            values if num_channels == 3 else values[..., 0],
            n_segments=request,
            compactness=recipe.compactness / spread,  # undoes the rescaling
            min_size_factor=(arguments[1] + 0.5) / actual,  # which scikit-image multiplies by `actual` and rounds down
            max_size_factor=(arguments[2] + 0.5) / actual,
            convert2lab=False,
            start_label=0,
            channel_axis=-1 if num_channels == 3 else None,
        )
        if segments.max() < recipe.max_segments:
            return segments
    raise AssertionError("a single segment is always few enough")


def sum_superpixels(
    images_GHWC: np.ndarray, label_G: np.ndarray, recipe: SlicRecipe, *, num_threads: int = 1
) -> SuperpixelSums:
    """Return the superpixels of some images of uint8, in the order of their segments' numbers."""
    with ThreadPoolExecutor(num_threads) as threads:
        tables = list(threads.map(lambda image_HWC: _sum_image(image_HWC, recipe), images_GHWC))
    table = np.concatenate(tables).astype(np.int64)
    count_N, row_N, col_N = table[:, :3].T
    sizes = np.array([len(t) for t in tables])
    return SuperpixelSums(sizes, label_G.astype(np.int64), count_N, row_N, col_N, table[:, 3:])


def _sum_image(image_HWC: np.ndarray, recipe: SlicRecipe) -> np.ndarray:
    """Pixels, rows, columns and values of each superpixel, summed: [n, 3 + C]."""
    segments = segment_image(image_HWC, recipe)
    row_HW, col_HW = np.indices(segments.shape)
    # Segments without pixels do not occur: scikit-image numbers connected parts one after the other.
    columns = [np.ones(segments.shape), row_HW, col_HW, *np.moveaxis(image_HWC, -1, 0)]
    return np.stack([np.bincount(segments.ravel(), weights=c.ravel()) for c in columns], axis=1)
