"""Sizes of the experiments of unit 04, fast loading, and what they need at `gpu` scale."""

from course.system.fit import PROCESS_BYTES, Need, UnitNeeds

# name -> its value at (smoke, laptop, gpu)
SIZES = {
    "rows": (2000, 100_000, 200_000),
    "columns": (64, 1000, 2000),
    "batch_size": (128, 2048, 2048),
    "step_rows": (128, 9216, 8192),  # of batches whose tensors glibc always returns, on a laptop
    "seconds": (0.0, 12.0, 12.0),  # after which a comparison begins no further round
    "one_by_one": (200, 2000, 4000),  # rows that are loaded one by one
    "rows_written": (500, 25_000, 20_000),  # to a file of part 1
    # bytes of two batches
    "gathered": ((2**16, 2**18), (2**23, 34 * 2**20), (2**23, 34 * 2**20)),
    # MiB of new tensors
    "fresh_mib": ((1, 33), (1, 4, 8, 16, 31, 33, 48, 64), (1, 4, 8, 16, 31, 33, 48, 64)),
    "page": (2**11, 2**18, 2**18),  # bytes
    "window": (2**17, 2**25, 2**25),  # bytes, or a batch if that is more
    "sorted_rows": (2048, 65_536, 65_536),  # of the file that orders are compared on
    "sorted_page_rows": (16, 128, 128),
    "sorted_batch": (16, 64, 64),
    "epochs": (2, 10, 10),
    "ridge_rows": ((100, 400), (500, 5000), (500, 5000)),  # of the two kinds of problems
    "ridge_columns": (10, 100, 100),
    "ridge_seeds": (2, 6, 6),
    "cold_rows": (512, 16_384, 16_384),  # that are read from the disk again and again
    "judged_samples": (4096, 65_536, 65_536),  # of a token file
    "judged_length": (64, 1024, 1024),  # tokens of a sample
    "judged_shard": (32, 256, 256),  # samples
    "judged_buffer": (128, 1024, 1024),  # samples, also of a window
    "judged_batch": (16, 64, 64),
    "judged_pictures": (256, 2048, 2048),
    "judged_side": (16, 192, 192),  # pixels
    "judged_tar": (16, 64, 64),  # pictures of a tar file
    "judged_tar_buffer": (64, 256, 256),
    "judged_seconds": (0.0, 3.0, 3.0),  # of a comparison with memcpy
    "targets": (8, 32, 128),  # columns of the matrix with which such a batch is multiplied
}

NEEDS = UnitNeeds(
    minutes=20,
    resources={
        # datasets/regression.py makes its file fit
        "disk": Need(0, {"rows": 9016}, shrinks=False),
        # a table while it is drawn: its columns, and all of them side by side
        "memory": Need(PROCESS_BYTES, {"rows": 2 * 4 * 2001}),
        "gpu": Need(0, {"step_rows": 8 * 2000 * 4}),
    },
)
