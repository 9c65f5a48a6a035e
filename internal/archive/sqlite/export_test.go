package sqlite

// SmallWriter makes a writer cut its lists into small blocks, so that few jobs need many.
func SmallWriter(w *Writer) { w.c.sizes = sizes{fold: 7, block: 4, work: 100, gather: 1000} }

// SmallReader makes a reader end its pages early for the work that they took.
func SmallReader(r *Reader) { r.sizes = sizes{fold: 7, block: 4, work: 100, gather: 1000} }
