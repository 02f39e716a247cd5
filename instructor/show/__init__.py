"""Show the course to people without a kernel: static pages, slides, an instructor's guide."""
