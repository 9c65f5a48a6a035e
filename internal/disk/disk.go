// Package disk decides whether a file system has enough room left to go on as usual.
//
//	space, err := disk.Measure("/var/lib/plimsoll")
//	if gate.Shut(space) { … space.Shortage() … }
//
// Enough is the smaller of 5 % and 2 GiB. Below it no new work is begun, so that work under way
// has room to end. A shut gate opens at a tenth more than that, so that it does not open and shut
// with each file. The coordinator watches the disk of its store, and an agent that of its
// directory. The package keeps nothing and starts nothing.
package disk

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
)

// Space is the size and free room of a file system.
type Space struct {
	Path string // a path on the file system
	Free int64  // bytes available to any user
	Size int64  // bytes
}

// Measure returns the space of the file system that holds a path.
func Measure(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, fmt.Errorf("measure the disk of %s: %w", path, err)
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return Space{Path: path, Free: int64(st.Bavail) * unit, Size: int64(st.Blocks) * unit}, nil
}

const (
	share = 20 // the least is this fraction of the file system
	most  = 2 << 30
	again = 10 // a gate reopens at this fraction more than the least
)

// Least returns the amount that must be free.
func (s Space) Least() int64 { return min(s.Size/share, most) }

// Reopens returns the amount at which a shut gate opens.
func (s Space) Reopens() int64 { return s.Least() + s.Least()/again }

// Shortage describes the shortage: "the disk of /var/lib has 120Mi free and needs 2Gi".
func (s Space) Shortage() string {
	return fmt.Sprintf("the disk of %s has %s free and needs %s", s.Path, rounded(s.Free), rounded(s.Least()))
}

// Enough describes the amount at which there is room again: "2.2Gi free".
func (s Space) Enough() string { return rounded(s.Reopens()) + " free" }

// rounded returns an amount rounded for people.
func rounded(n int64) string {
	switch {
	case n >= 100<<20:
		n -= n % (1 << 20)
	case n >= 1<<10:
		n -= n % (1 << 10)
	}
	return plimsoll.FormatQuantity(plimsoll.Disk, n)
}

// Gate decides whether there is room for new work. Its zero value is open.
type Gate struct{ shut bool }

// Shut reports whether the gate is shut, given the present space. A file system without a size,
// such as some virtual ones, shuts no gate.
func (g *Gate) Shut(s Space) bool {
	switch {
	case s.Size == 0:
		g.shut = false
	case g.shut:
		g.shut = s.Free < s.Reopens()
	default:
		g.shut = s.Free < s.Least()
	}
	return g.shut
}
