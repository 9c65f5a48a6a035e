package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one line of the process table.
type process struct {
	pid, ppid, session int
	state              byte
	start              uint64 // clock ticks since boot
}

func (p *process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// bootID identifies the present run of the kernel.
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// procFile reads a file of a process. Searches read one file of each process on the machine, so it
// uses system calls: os.ReadFile takes twice as many.
func procFile(pid int, name string) (data []byte, err error) {
	path := "/proc/" + strconv.Itoa(pid) + "/" + name
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	data = make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return data, nil
		}
		data = data[:len(data)+n]
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
	}
}

// readProcess reads a pid's line of the process table. ok is false if there is no such process.
func readProcess(pid int) (p process, ok bool, err error) {
	data, err := procFile(pid, "stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return process{}, false, nil
	}
	if err != nil {
		return process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	p, err = parseStat(pid, data)
	return p, err == nil, err
}

// parseStat reads a line of proc_pid_stat(5). The fields are found from the right, because the
// program's name may contain any character.
func parseStat(pid int, data []byte) (process, error) {
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return process{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	p := process{pid: pid, state: fields[0][0]}
	var err1, err2, err3 error
	p.ppid, err1 = strconv.Atoi(fields[1])
	p.session, err2 = strconv.Atoi(fields[3])
	p.start, err3 = strconv.ParseUint(fields[19], 10, 64)
	return p, errors.Join(err1, err2, err3)
}

// alive reports whether the process of the record still runs. The caller has compared the boot id.
func alive(pid int, start uint64) (bool, error) {
	p, ok, err := readProcess(pid)
	return ok && p.start == start && !p.dead(), err
}

// processesOf finds the processes of an attempt without control groups.
//
// If the attempt has its own uid, its processes are those of that uid: no program of the attempt
// can gain another. Otherwise they are the processes in its session, those with its mark or its
// environment variables, and the descendants of all of them. sid zero means that the session is
// unknown.
func processesOf(a *attempt, sid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := make([]int, 0, len(entries))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	if a.uid != 0 {
		return withUID(pids, a.uid), nil
	}
	return markedBy(a, sid, pids)
}

// withUID returns the processes with a uid.
func withUID(pids []int, uid uint32) (found []int) {
	want := strconv.FormatUint(uint64(uid), 10)
	for _, pid := range pids {
		if slices.Contains(uidsOf(pid), want) {
			found = append(found, pid)
		}
	}
	return found
}

// markedBy returns the processes that have an attempt's session, mark or variables, and their
// descendants.
func markedBy(a *attempt, sid int, pids []int) (marked []int, err error) {
	vars, mark := a.environmentMarks(), a.limitMark()
	children := map[int][]process{}
	var found []process
	for _, pid := range pids {
		p, ok, err := readProcess(pid)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		children[p.ppid] = append(children[p.ppid], p)
		if sid != 0 && p.session == sid || hasLimitMark(pid, mark) || hasEnvironment(pid, vars) {
			found = append(found, p)
		}
	}
	for i := 0; i < len(found); i++ {
		for _, child := range children[found[i].pid] {
			if !slices.Contains(found, child) {
				found = append(found, child)
			}
		}
	}
	for _, p := range found {
		if !p.dead() {
			marked = append(marked, p.pid)
		}
	}
	return marked, nil
}

// hasEnvironment reports whether the process was started with all these variables. The result is
// false for a process that may not be read.
func hasEnvironment(pid int, marks []string) bool {
	data, err := procFile(pid, "environ")
	if err != nil {
		return false
	}
	vars := bytes.Split(data, []byte{0})
	for _, mark := range marks {
		if !slices.ContainsFunc(vars, func(v []byte) bool { return string(v) == mark }) {
			return false
		}
	}
	return true
}
