package executor

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/plimsoll-dev/plimsoll"
)

// uidsFile, in the agent's directory, says where in the range the next uids are taken from.
const uidsFile = "uids.json"

// uidBlock is how many uids are looked at together: processes and files are searched once for all
// of them.
const uidBlock = 256

// uids gives out uids, each of which serves as a gid too. It goes round through the range, so that
// one comes again as late as possible, and then only if nothing of it is left: no process, no
// directory of an attempt or of a task, no file in a directory that everybody may write to. Nothing
// can come to be of a uid that nobody has, so it is enough to look before a block of them is given
// out.
type uids struct {
	dir    string   // the agent's
	shared []string // directories that everybody may write to

	mu struct {
		sync.Mutex
		all   UIDRange
		next  uint32
		ready []uint32 // of the last block: those that are free
		held  map[uint32][]place
	}
}

// place is a directory for which a uid was given out. Another that gets its name is not the same: a
// task that comes back after its directory was removed must not hold the uids that it had.
type place struct {
	path  string
	inode uint64 // 0: not known
}

func placeAt(path string) place { return place{path, inodeOf(path)} }

// there reports whether the directory still is there.
func (p place) there() bool {
	info, err := os.Lstat(p.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || p.inode == 0 || st.Ino == p.inode
}

func inodeOf(path string) uint64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// uidsRecord is uidsFile.
type uidsRecord struct {
	Next uint32 `json:"next"`
}

func newUIDs(dir string) *uids {
	u := &uids{dir: dir, shared: []string{"/tmp", "/var/tmp", "/dev/shm"}}
	u.mu.held = map[uint32][]place{}
	return u
}

// hold says that a uid belongs to what is at path, for as long as that is there.
func (u *uids) hold(id uint32, path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.held[id] = append(u.mu.held[id], placeAt(path))
}

// take gives out a uid of the range, for what is at path.
func (u *uids) take(all UIDRange, path string) (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.all != all {
		if err := u.begin(all); err != nil {
			return 0, err
		}
	}
	for seen := 0; len(u.mu.ready) == 0; {
		if seen >= all.size() {
			return 0, plimsoll.Errorf(plimsoll.CodeExhausted,
				"none of the uids %v is free: each has a process, a directory of a task, or files; give the agent more with --task-uids", all)
		}
		n, err := u.look(all.size() - seen)
		if err != nil {
			return 0, err
		}
		seen += n
	}
	id := u.mu.ready[0]
	u.mu.ready = u.mu.ready[1:]
	u.mu.held[id] = append(u.mu.held[id], placeAt(path))
	return id, nil
}

// begin goes on where an earlier supervisor was. Agents begin at different places, so that two of
// one machine, which know nothing of each other, do not give out the same uids at the same time.
func (u *uids) begin(all UIDRange) error {
	var r uidsRecord
	if _, err := readJSON(
		filepath.Join(u.dir, uidsFile), &r,
	); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		return err
	}
	if !all.holds(r.Next) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(u.dir)) // a hash takes everything
		r.Next = all.First + uint32(uint64(h.Sum32())%uint64(all.size()))
	}
	u.mu.all, u.mu.next, u.mu.ready = all, r.Next, nil
	return nil
}

// look finds out which uids of the next block are free; it needs mu. n is how many it has looked
// at, at most max.
func (u *uids) look(most int) (n int, err error) {
	all := u.mu.all
	first := u.mu.next
	n = min(uidBlock, most, int(all.Last-first)+1)
	block := UIDRange{first, first + uint32(n-1)}
	used := map[uint32]bool{}
	for id := block.First; id <= block.Last; id++ {
		if u.isHeld(id) {
			used[id] = true
		}
	}
	if err := errors.Join(markUsers("/etc", block, used), markProcesses(block, used)); err != nil {
		return 0, err
	}
	for _, dir := range u.shared {
		markFiles(dir, block, used)
	}
	if u.mu.next = block.Last + 1; block.Last == all.Last {
		u.mu.next = all.First
	}
	// Before any of them is given out: a supervisor that is started anew must not begin with them
	// again.
	if err := replaceJSON(u.dir, uidsFile, uidsRecord{u.mu.next}); err != nil {
		return 0, err
	}
	u.mu.ready = u.mu.ready[:0]
	for id := block.First; id <= block.Last; id++ {
		if !used[id] {
			u.mu.ready = append(u.mu.ready, id)
		}
	}
	return n, nil
}

// isHeld reports whether something is left of what a uid was given out for; it needs mu.
func (u *uids) isHeld(id uint32) bool {
	var left []place
	for _, at := range u.mu.held[id] {
		if at.there() {
			left = append(left, at)
		}
	}
	if len(left) == 0 {
		delete(u.mu.held, id)
		return false
	}
	u.mu.held[id] = left
	return true
}

// markUsers marks uids and gids that users and groups of this machine have, also those that are
// set aside for the containers of one.
func markUsers(etc string, block UIDRange, used map[uint32]bool) error {
	for _, name := range []string{"passwd", "group", "subuid", "subgid"} {
		data, err := os.ReadFile(filepath.Join(etc, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look which uids have users: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			switch {
			case len(fields) < 3:
			case strings.HasPrefix(name, "sub"):
				markRange(fields[1], fields[2], block, used)
			default:
				mark(fields[2], block, used)
			}
		}
	}
	return nil
}

// markRange marks so many uids from the first on.
func markRange(first, count string, block UIDRange, used map[uint32]bool) {
	from, err1 := strconv.ParseUint(first, 10, 32)
	n, err2 := strconv.ParseUint(count, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return // not a line of such a file
	}
	for id := max(from, uint64(block.First)); id < from+n && id <= uint64(block.Last); id++ {
		used[uint32(id)] = true
	}
}

func mark(text string, block UIDRange, used map[uint32]bool) {
	if id, err := strconv.ParseUint(text, 10, 32); err == nil && block.holds(uint32(id)) {
		used[uint32(id)] = true
	}
}

// markProcesses marks uids that a process has, as any of its four.
func markProcesses(block UIDRange, used map[uint32]bool) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("look which uids have processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		for _, id := range uidsOf(pid) {
			mark(id, block, used)
		}
	}
	return nil
}

// uidsOf returns the four uids of a process; none of one that has ended. One whose status cannot be
// read has just ended, and one whose parent has not noticed its end does nothing any more.
func uidsOf(pid int) []string {
	data, err := procFile(pid, "status")
	if err != nil || bytes.Contains(data, []byte("\nState:\tZ")) {
		return nil
	}
	_, ids, _ := strings.Cut(string(data), "\nUid:")
	ids, _, _ = strings.Cut(ids, "\n")
	return strings.Fields(ids)
}

// markFiles marks uids that own something directly in a directory. One that cannot be listed has
// nothing that could be seen.
func markFiles(dir string, block UIDRange, used map[uint32]bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it has just gone
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			for _, id := range []uint32{st.Uid, st.Gid} {
				if block.holds(id) {
					used[id] = true
				}
			}
		}
	}
}
