package sample

import (
	"os"
	"testing"
	"time"
)

// Groups beyond the bound on open files are measured too, and keep no file open.
func TestGroupsWithoutRoomAreMeasuredToo(t *testing.T) {
	first, firstDir := fakeGroup(t)
	second, secondDir := fakeGroup(t)
	for _, dir := range []string{firstDir, secondDir} {
		files(
			t, dir,
			map[string]string{
				"cpu.stat": "usage_usec 1\n", "memory.current": "9000\n",
				"memory.stat": "inactive_file 4000\nactive_file 1000\n",
			},
		)
	}
	s, err := New(Config{Proc: fakeProc(t), MaxFiles: groupFiles})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, s)
	if err := s.Track("first", first); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	if err := s.Track("second", second); err != nil {
		t.Fatal(err)
	}
	if took := descriptors(t) - before; took != 0 {
		t.Errorf("a group without room keeps %d descriptors", took)
	}
	var out Sweep
	for i := range 2 {
		if err := s.Sweep(time.Unix(int64(1000+i), 0), &out); err != nil {
			t.Fatal(err)
		}
		for _, g := range out.Groups {
			if g.Memory != 4000 || !g.MemoryKnown || g.Gone || g.CPUKnown != (i > 0) {
				t.Errorf("sweep %d: %+v", i, g)
			}
		}
	}
	if err := os.RemoveAll(secondDir); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(time.Unix(1002, 0), &out); err != nil || !out.Groups[1].Gone || s.Len() != 1 {
		t.Errorf("after its end: %+v, %v", out.Groups, err)
	}
	s.Drop("first")
	if err := s.Track("first", first); err != nil || descriptors(t) != before {
		t.Errorf("the room was not given back: %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
