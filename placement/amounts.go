package placement

import (
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// Amounts are resource amounts by the index that Names gives to a resource name.
type Amounts [plimsoll.MaxResourceNames]int64

// Add adds o.
func (a *Amounts) Add(o *Amounts) {
	for i := range a {
		a[i] += o[i]
	}
}

// AddTimes adds n times o.
func (a *Amounts) AddTimes(o *Amounts, n int64) {
	for i := range a {
		a[i] += n * o[i]
	}
}

// Sub subtracts o.
func (a *Amounts) Sub(o *Amounts) {
	for i := range a {
		a[i] -= o[i]
	}
}

// mostCounted is the largest amount in use: sums and differences of two such amounts do not
// overflow.
const mostCounted = int64(1) << 61

// counted returns a whole number as an amount, within ±mostCounted. A tiny ratio makes numbers
// beyond that.
func counted(n float64) int64 {
	return int64(math.Max(-float64(mostCounted), math.Min(n, float64(mostCounted))))
}

// The indexes of the resources that every node has.
const (
	IndexCPU = iota
	IndexMemory
	IndexDisk
	firstCustom
)

// Names interns resource names. A name keeps its index until Fleet.ForgetName frees the index for
// another name. The zero value is not usable; call NewNames.
type Names struct {
	// names is "" where an index is free. Invariant: the slice is replaced and its elements never
	// change, so that a copy of the header is a copy of the names.
	names []string
	free  int // number of free indexes
}

// NewNames returns the names of the resources that every node has.
func NewNames() *Names {
	return &Names{names: []string{plimsoll.CPU, plimsoll.Memory, plimsoll.Disk}}
}

// Clone returns a copy that may be changed apart from the original.
func (n *Names) Clone() *Names {
	c := *n
	return &c
}

// Len returns how many indexes there are; some may be free.
func (n *Names) Len() int { return len(n.names) }

// Name returns the name of an index; empty if it is free.
func (n *Names) Name(i int) string { return n.names[i] }

// Index returns the index of a name, or -1 if it is not known.
func (n *Names) Index(name string) int { return slices.Index(n.names, name) }

// Check returns an error if the names of r would bring the table over its bound.
func (n *Names) Check(field string, r plimsoll.Resources) error {
	fresh := 0
	for _, name := range r.Names() {
		if !slices.Contains(n.names, name) {
			fresh++
		}
	}
	if len(n.names)-n.free+fresh > plimsoll.MaxResourceNames {
		return plimsoll.Invalid(
			field, "brings the cluster over %d different resource names; use those that exist",
			plimsoll.MaxResourceNames,
		)
	}
	return nil
}

// Amounts enters the names of r, which Check has accepted. It returns the amounts and a mask of the
// names that r has.
func (n *Names) Amounts(r plimsoll.Resources) (a Amounts, set uint32) {
	for _, name := range r.Names() {
		i := slices.Index(n.names, name)
		if i < 0 {
			i = n.take(name)
		}
		a[i] = r[name]
		set |= 1 << i
	}
	return a, set
}

// take gives a name an index, a free one if there is one.
func (n *Names) take(name string) int {
	if n.free == 0 {
		n.names = append(n.names[:len(n.names):len(n.names)], name)
		return len(n.names) - 1
	}
	i := slices.Index(n.names, "")
	n.names = slices.Clone(n.names)
	n.names[i] = name
	n.free--
	return i
}

// forget frees an index.
func (n *Names) forget(i int) {
	n.names = slices.Clone(n.names)
	n.names[i] = ""
	n.free++
}

// Resources is the inverse of Amounts: it returns the amounts that are not zero.
func (n *Names) Resources(a *Amounts) plimsoll.Resources {
	r := plimsoll.Resources{}
	for i, name := range n.names {
		if a[i] != 0 && name != "" {
			r[name] = a[i]
		}
	}
	return r
}

// Masked returns the amounts of the names in the mask, zeros included.
func (n *Names) Masked(a *Amounts, set uint32) plimsoll.Resources {
	r := plimsoll.Resources{}
	for i, name := range n.names {
		if set&(1<<i) != 0 {
			r[name] = a[i]
		}
	}
	return r
}
