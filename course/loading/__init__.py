"""Given parts of loaders: workers, copies to a device, record files, a pool of pages."""
