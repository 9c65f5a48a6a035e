package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
)

// put makes a file with a name below dir that uses so many bytes of disk.
func put(t *testing.T, bytes int, names ...string) string {
	t.Helper()
	path := filepath.Join(names...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, bytes), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// blocksOf returns the disk usage of one file or directory.
func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// Usage counts blocks. Holes and targets of links do not count, a file with several names counts
// once, and an open file counts without any name.
func TestUsageCountsBlocks(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	want := int64(0)
	plain := put(t, 64<<10, dir, "a", "b", "plain")
	want += blocksOf(t, plain)
	if err := os.Link(plain, filepath.Join(dir, "another name")); err != nil {
		t.Fatal(err)
	}
	holes := put(t, 4096, dir, "a", "holes")
	if err := os.Truncate(holes, 1<<40); err != nil {
		t.Fatal(err)
	}
	want += blocksOf(t, holes)
	far := put(t, 1<<20, elsewhere, "far")
	for _, target := range []string{far, elsewhere, "/", dir} {
		if err := os.Symlink(target, filepath.Join(dir, "link"+strings.ReplaceAll(target, "/", "-"))); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open(put(t, 32<<10, dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() }) // nothing was written to it
	want += blocksOf(t, held.Name())
	if err := os.Remove(held.Name()); err != nil {
		t.Fatal(err)
	}
	named, err := os.Open(put(t, 16<<10, dir, "named"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = named.Close() }) // nothing was written to it
	want += blocksOf(t, named.Name())
	for _, sub := range []string{"a", "a/b"} {
		want += blocksOf(t, filepath.Join(dir, sub))
	}
	u := newUsage([]*os.File{held, named}, dir, filepath.Join(dir, "gone"))
	for u.step(1) {
	}
	if u.failed != nil || u.bytes != want {
		t.Errorf("counted %d, %v; want %d", u.bytes, u.failed, want)
	}
}

// A directory with many files is read in small steps, and one of many levels without a descriptor
// for each.
func TestUsageGoesInSmallSteps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files, depth = 3000, 150
	want := int64(0)
	for i := range files {
		want += blocksOf(t, put(t, 1, dir, "many", fmt.Sprintf("file-%d", i)))
	}
	want += blocksOf(t, filepath.Join(dir, "many"))
	deep := filepath.Join(dir, "many")
	for range depth {
		deep = filepath.Join(deep, "d")
	}
	want += blocksOf(t, put(t, 1, deep, "last"))
	for ; deep != filepath.Join(dir, "many"); deep = filepath.Dir(deep) {
		want += blocksOf(t, deep)
	}
	u := newUsage(nil, dir)
	steps := 1
	for before := u.entries; u.step(10); before = u.entries {
		if steps++; u.entries-before > 1000 {
			t.Fatalf("a step looked at %d entries", u.entries-before)
		}
	}
	if u.failed != nil || u.bytes != want || steps < 10 {
		t.Errorf("counted %d in %d steps, %v; want %d", u.bytes, steps, u.failed, want)
	}
}

// A task that exceeds its disk ends, and its message has the amount. A task within its amount, and
// one without, run on. A hole in a file does not count.
func TestTaskOverItsDiskEnds(t *testing.T) {
	fast := bare
	fast.disk = 10 * 1e6
	eachMode(t, []mode{fast}, func(t *testing.T, n *node) {
		const write = "dd if=/dev/zero of=%s bs=64K count=%d 2>/dev/null; echo done; exec /bin/sleep 1000"
		asks := func(task, script string, bytes int64) StartRequest {
			req := request(task, script)
			req.Spec.Resources = plimsoll.Resources{plimsoll.Disk: bytes}
			return req
		}
		modest := asks("job.modest.0", fmt.Sprintf("truncate -s 1T holes; "+write, "file", 8), 2<<20)
		unbounded := request("job.unbounded.0", fmt.Sprintf(write, "file", 64))
		for _, req := range []StartRequest{modest, unbounded} {
			n.start(req)
			n.eventually("what it writes", func() bool { return n.output(req.Task, Stdout) != "" })
		}
		greedy := n.run(asks("job.greedy.0", fmt.Sprintf("mkdir -p a/b; "+write, "a/b/file", 64), 1<<20))
		n.wantEnd(greedy, plimsoll.ResultOutOfDisk, 143, "it used ")
		if !strings.HasSuffix(greedy.Message, " of disk, and asked for 1Mi") {
			t.Errorf("its message is %q", greedy.Message)
		}
		again := asks("job.greedy.0", "echo >> began; exec /bin/sleep 1000", 1<<20)
		again.Attempt = 2
		n.start(again)
		// Its directory is kept.
		n.wantEnd(n.waitFor(again.Task, 2, (*Status).Ended), plimsoll.ResultOutOfDisk, 143, "it used ")
		for _, task := range []string{modest.Task, unbounded.Task} {
			if s := n.waitFor(task, 1, func(*Status) bool { return true }); s.Ended() {
				t.Errorf("%s has ended: %s", task, s.Message)
			}
		}
	})
}
