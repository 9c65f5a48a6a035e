package plimsoll

import "testing"

// A use outside of tasks is told again when it has changed enough: by more than 5 % of the node's
// capacity, or by 1 GiB of memory.
func TestUseThatIsToldAgain(t *testing.T) {
	small, large := Resources{CPU: 4000, Memory: 8 << 30}, Resources{CPU: 64_000, Memory: 256 << 30}
	part := (int64(8) << 30) / OccupiedPart
	for _, c := range []struct {
		name     string
		was, is  NodeUse
		capacity Resources
		want     bool
	}{
		{"the same", NodeUse{100, 1}, NodeUse{100, 1}, small, false},
		{"5 % of the processors", NodeUse{100, 0}, NodeUse{300, 0}, small, false},
		{"more than that", NodeUse{100, 0}, NodeUse{301, 0}, small, true},
		{"less by more than that", NodeUse{301, 0}, NodeUse{100, 0}, small, true},
		{"5 % of the memory", NodeUse{}, NodeUse{0, part}, small, false},
		{"a byte more than that", NodeUse{}, NodeUse{0, part + 1}, small, true},
		{"almost 1 GiB of a large node", NodeUse{}, NodeUse{0, OccupiedMemory - 1}, large, false},
		{"1 GiB of a large node", NodeUse{}, NodeUse{0, OccupiedMemory}, large, true},
		{"anything, on a node that has nothing", NodeUse{}, NodeUse{1, 0}, nil, true},
	} {
		if got := c.is.Differs(c.was, c.capacity); got != c.want {
			t.Errorf("%s: told again: %t", c.name, got)
		}
	}
}
