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

// uidsFile, in the agent's directory, has the position of the next uids in the range.
const uidsFile = "uids.json"

// uidBlock is the number of uids that are checked together, with one search of processes and files.
const uidBlock = 256

// uids allocates uids, each of which serves as a gid too.
//
// Allocation goes round through the range, so a uid is reused as late as possible. A reused uid has
// no process, no directory of an attempt or task, and no file in a public directory. A uid without
// any process cannot gain files, so a check before a block is allocated is enough.
type uids struct {
	dir    string   // the agent's directory
	shared []string // directories that every user may write to

	mu struct {
		sync.Mutex
		all   UIDRange
		next  uint32
		ready []uint32 // free uids of the last block
		held  map[uint32][]dirIdentity
	}
}

// dirIdentity is a directory for which a uid was allocated. A later directory of the same name is a
// different one: a task that comes back must not hold the uids that it had.
type dirIdentity struct {
	path  string
	inode uint64 // 0: unknown
}

func identityOf(path string) dirIdentity { return dirIdentity{path, inodeOf(path)} }

// exists reports whether the directory still exists.
func (p dirIdentity) exists() bool {
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

// uidsRecord is the content of uidsFile.
type uidsRecord struct {
	Next uint32 `json:"next"`
}

func newUIDs(dir string) *uids {
	u := &uids{dir: dir, shared: []string{"/tmp", "/var/tmp", "/dev/shm"}}
	u.mu.held = map[uint32][]dirIdentity{}
	return u
}

// hold reserves a uid for the directory at path, while that exists.
func (u *uids) hold(id uint32, path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.held[id] = append(u.mu.held[id], identityOf(path))
}

// take reserves a uid of the range for the directory at path.
func (u *uids) take(all UIDRange, path string) (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.all != all {
		if err := u.begin(all); err != nil {
			return 0, err
		}
	}
	for checked := 0; len(u.mu.ready) == 0; {
		if checked >= all.size() {
			return 0, plimsoll.Errorf(plimsoll.CodeExhausted,
				"none of the uids %v is free: each has a process, a directory of a task, or files; give the agent more with --task-uids", all)
		}
		n, err := u.checkBlock(all.size() - checked)
		if err != nil {
			return 0, err
		}
		checked += n
	}
	id := u.mu.ready[0]
	u.mu.ready = u.mu.ready[1:]
	u.mu.held[id] = append(u.mu.held[id], identityOf(path))
	return id, nil
}

// begin continues at the position of an earlier supervisor. Agents begin at different positions, so
// that two of one machine, which do not know each other, use different uids at a time.
func (u *uids) begin(all UIDRange) error {
	var r uidsRecord
	if _, err := readJSON(
		filepath.Join(u.dir, uidsFile), &r,
	); err != nil && plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		return err
	}
	if !all.holds(r.Next) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(u.dir)) // a hash returns no error
		r.Next = all.First + uint32(uint64(h.Sum32())%uint64(all.size()))
	}
	u.mu.all, u.mu.next, u.mu.ready = all, r.Next, nil
	return nil
}

// checkBlock finds the free uids of the next block; it needs mu. n is the number of checked uids,
// at most most.
func (u *uids) checkBlock(most int) (n int, err error) {
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
	// The position is durable before any uid is used: a supervisor that starts anew must not use
	// them again.
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

// isHeld reports whether a directory of the uid still exists; it needs mu.
func (u *uids) isHeld(id uint32) bool {
	var left []dirIdentity
	for _, at := range u.mu.held[id] {
		if at.exists() {
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

// markUsers adds the uids and gids of this machine's users and groups to used, including the
// subordinate ones for containers. All functions below add only ids of the block.
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

// markRange adds count uids, from first on, to used.
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

// markProcesses adds the four uids of each process to used.
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

// uidsOf returns the four uids of a process, or none if the process has ended. An unreadable status
// means that the process has just ended; a zombie runs no more code.
func uidsOf(pid int) []string {
	data, err := procFile(pid, "status")
	if err != nil || bytes.Contains(data, []byte("\nState:\tZ")) {
		return nil
	}
	_, ids, _ := strings.Cut(string(data), "\nUid:")
	ids, _, _ = strings.Cut(ids, "\n")
	return strings.Fields(ids)
}

// markFiles adds the owners of the entries of a directory to used. An unreadable directory adds
// none.
func markFiles(dir string, block UIDRange, used map[uint32]bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it has just vanished
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
