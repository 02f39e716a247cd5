"""The course for people without a kernel: static pages, slides, an instructor's guide, agendas."""
