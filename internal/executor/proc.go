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
)

// process is one line of the process table.
type process struct {
	pid, ppid, session int
	state              byte
	start              uint64 // clock ticks since boot
}

func (p *process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// bootID names this run of the kernel.
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// readProcess reads the process table's line of a pid. ok is false if there is no such process.
func readProcess(pid int) (p process, ok bool, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return process{}, false, nil
	}
	if err != nil {
		return process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	p, err = parseStat(pid, data)
	return p, err == nil, err
}

// parseStat reads a line of proc_pid_stat(5). The program's name may hold anything, so it is skipped from the right.
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

// alive reports whether the process of the record still runs. The boot id was compared already.
func alive(pid int, start uint64) (bool, error) {
	p, ok, err := readProcess(pid)
	return ok && p.start == start && !p.dead(), err
}

// processesOf finds the processes of an attempt without control groups: those in its session, those
// that have its own uid, if it has one, those that carry its mark or, in their environment, its
// variables, and the descendants of all of them. sid zero: the session is not known.
func processesOf(a *attempt, sid int) ([]int, error) {
	vars, mark := a.marks(), a.limitMark()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]process{}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		p, ok, err := readProcess(pid)
		if err != nil {
			return nil, err
		}
		if !ok || p.pid == os.Getpid() {
			continue
		}
		children[p.ppid] = append(children[p.ppid], p)
		if sid != 0 && p.session == sid || a.uid != 0 && hasUID(e.Name(), a.uid) || carries(pid, mark) || hasEnvironment(pid, vars) {
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
	var pids []int
	for _, p := range found {
		if !p.dead() {
			pids = append(pids, p.pid)
		}
	}
	return pids, nil
}

func hasUID(pid string, uid uint32) bool {
	return slices.Contains(uidsOf(pid), strconv.FormatUint(uint64(uid), 10))
}

// hasEnvironment reports whether the process was started with all these variables. One that may not be looked at is not ours.
func hasEnvironment(pid int, marks []string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
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
