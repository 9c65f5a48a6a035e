package queue

// ranked is an item of a heap. It compares itself with others, and stores its own position.
type ranked[T any] interface {
	before(other T) bool
	place() *int32
}

// absent is the position of an item that is in no list.
const absent int32 = -1

// heap is a binary heap with the first item on top. A change of the order of one item must be
// followed by fix, a change of many by order, before any other call.
type heap[T ranked[T]] []T

func (h *heap[T]) push(v T) {
	*v.place() = int32(len(*h))
	*h = append(*h, v)
	h.up(len(*h) - 1)
}

// remove removes an item of the heap.
func (h *heap[T]) remove(v T) {
	i, last := int(*v.place()), len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	var zero T
	(*h)[last] = zero
	*h = (*h)[:last]
	*v.place() = absent
	if i < last && !h.down(i) {
		h.up(i)
	}
}

// fix restores the position of an item whose order has changed.
func (h *heap[T]) fix(v T) {
	if i := int(*v.place()); !h.down(i) {
		h.up(i)
	}
}

// order restores the heap after the order of all items may have changed.
func (h *heap[T]) order() {
	for i := len(*h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	*a[i].place(), *a[j].place() = int32(i), int32(j)
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].before((*h)[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

// down moves an item towards the leaves and reports whether it moved.
func (h *heap[T]) down(i int) bool {
	start, n := i, len(*h)
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && (*h)[child+1].before((*h)[child]) {
			child++
		}
		if !(*h)[child].before((*h)[i]) {
			break
		}
		h.swap(i, child)
		i = child
	}
	return i > start
}
