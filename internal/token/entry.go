package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// entry is the token of a server that listens on the loopback of this machine.
type entry struct {
	Server  string `json:"server"` // address and port
	Token   string `json:"token"`
	File    string `json:"file,omitempty"` // where the server keeps it
	Process owner  `json:"process"`
}

// owner identifies a process. No other process has the same owner, not even on another machine that
// shares the home directories.
type owner struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // start time, as the kernel counts
	Boot    string `json:"boot"`
}

func thisProcess() (owner, error) { return processOf(os.Getpid()) }

func processOf(pid int) (owner, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return owner{}, fmt.Errorf("read the boot id: %w", err)
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return owner{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// The program's name may hold any character, so the fields are counted from its end
	// (proc_pid_stat(5)).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return owner{}, fmt.Errorf("process %d has ended", pid)
	}
	return owner{pid, fields[19], strings.TrimSpace(string(boot))}, nil
}

func (o owner) lives() bool {
	now, err := processOf(o.PID)
	return err == nil && now == o
}

// place is the directory with the entries of one user.
type place struct {
	dir string
	uid uint32
	gid uint32
}

// own returns the place of the user of this process.
func own() (place, error) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if config := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(config) && (uid != 0 || owns(uid, filepath.Dir(config))) {
		return place{filepath.Join(config, "plimsoll", "tokens"), uid, gid}, nil
	}
	home := os.Getenv("HOME")
	if !owns(uid, home) { // sudo may leave the HOME of its caller
		u, err := user.LookupId(strconv.Itoa(int(uid)))
		if err != nil {
			return place{}, fmt.Errorf("find the home directory: %w", err)
		}
		home = u.HomeDir
	}
	return homePlace(home, uid, gid)
}

func homePlace(home string, uid, gid uint32) (place, error) {
	if !owns(uid, home) {
		return place{}, fmt.Errorf("user %d has no home directory: %q is none of theirs", uid, home)
	}
	return place{filepath.Join(home, ".config", "plimsoll", "tokens"), uid, gid}, nil
}

func owns(uid uint32, dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == uid
}

// sudoer returns the place of the user who started this process through sudo. ok is false if the
// process was not started through sudo.
func sudoer() (p place, ok bool, err error) {
	id, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	if os.Geteuid() != 0 || err != nil || id == 0 {
		return place{}, false, nil
	}
	u, err := user.LookupId(strconv.FormatUint(id, 10))
	if err != nil {
		return place{}, true, fmt.Errorf("find the home directory of user %d: %w", id, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return place{}, true, fmt.Errorf("read the group of user %d: %w", id, err)
	}
	p, err = homePlace(u.HomeDir, uint32(id), uint32(gid))
	return p, true, err
}

// do calls f with the file permissions of the place's user: root must not follow links that another
// user puts into a home directory.
func (p place) do(f func() error) error {
	if p.uid == uint32(os.Geteuid()) {
		return f()
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ended <- func() error {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
				return fmt.Errorf("leave the groups of root: %w", errno)
			}
			if _, err := unix.SetfsgidRetGid(int(p.gid)); err != nil {
				return fmt.Errorf("take the group %d: %w", p.gid, err)
			}
			if _, err := unix.SetfsuidRetUid(int(p.uid)); err != nil {
				return fmt.Errorf("take the user %d: %w", p.uid, err)
			}
			if now, _ := unix.SetfsuidRetUid(-1); now != int(p.uid) {
				return fmt.Errorf("the kernel does not let this process act as user %d", p.uid)
			}
			return f()
		}()
	}()
	return <-ended
}

func (p place) path(kind Kind, server netip.AddrPort) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s_%d.%s", server.Addr(), server.Port(), kind))
}

// Enter lets callers on this machine find the tokens of a listener that they reach by the loopback.
// Processes of the listener's user find all of them. If this process was started through sudo,
// processes of the user who called sudo find the user tokens. withdraw removes the entries. Besides
// an error, the entries that could be written stay.
func Enter(listener net.Addr, tokens []Token) (withdraw func(), err error) {
	var entered []func()
	withdraw = func() {
		for _, f := range entered {
			f()
		}
	}
	servers := loopbacks(listener)
	if len(servers) == 0 || len(tokens) == 0 {
		return withdraw, nil
	}
	self, err := thisProcess()
	if err != nil {
		return withdraw, err
	}
	enter := func(p place, only Kind) error {
		return p.do(func() error {
			if err := p.clear(); err != nil {
				return err
			}
			for _, server := range servers {
				for _, t := range tokens {
					if only != 0 && t.kind != only {
						continue
					}
					e := entry{server.String(), *t.text, t.file, self}
					path := p.path(t.kind, server)
					if err := e.write(path); err != nil {
						return err
					}
					// an entry that stays behind is harmless: nobody finds a token of an ended
					// process
					entered = append(entered, func() { _ = p.do(func() error { return e.remove(path) }) })
				}
			}
			return nil
		})
	}
	p, err := own()
	if err == nil {
		err = enter(p, 0)
	}
	if p, ok, sudoErr := sudoer(); ok {
		if sudoErr == nil {
			sudoErr = enter(p, User)
		}
		err = errors.Join(err, sudoErr)
	}
	return withdraw, err
}

// loopbacks returns the addresses by which this machine reaches a listener without a network.
func loopbacks(listener net.Addr) []netip.AddrPort {
	tcp, ok := listener.(*net.TCPAddr)
	if !ok {
		return nil
	}
	at := tcp.AddrPort()
	v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	switch ip := at.Addr().Unmap().WithZone(""); {
	case ip.IsLoopback():
		return []netip.AddrPort{netip.AddrPortFrom(ip, at.Port())}
	case ip == netip.IPv4Unspecified():
		return []netip.AddrPort{netip.AddrPortFrom(v4, at.Port())}
	case ip == netip.IPv6Unspecified():
		return []netip.AddrPort{netip.AddrPortFrom(v4, at.Port()), netip.AddrPortFrom(v6, at.Port())}
	}
	return nil
}

// clear makes the directory, and removes the entries of processes that have ended.
func (p place) clear() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory for tokens: %w", err)
	}
	left, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("list the directory for tokens: %w", err)
	}
	for _, file := range left[:min(len(left), 1000)] {
		path := filepath.Join(p.dir, file.Name())
		if e, err := p.read(path); err == nil && !e.Process.lives() {
			_ = os.Remove(path) // an entry that stays behind is harmless
		}
	}
	return nil
}

func (e *entry) write(path string) error {
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // a broken invariant: strings and numbers have a JSON form
	}
	if err := replace(path, append(data, '\n')); err != nil {
		return fmt.Errorf("enter the token: %w", err)
	}
	return nil
}

// remove removes the entry unless another process has replaced it.
func (e *entry) remove(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err //nolint:wrapcheck // the caller ignores the error
	}
	var now entry
	if json.Unmarshal(data, &now) != nil || now.Process != e.Process {
		return nil
	}
	return os.Remove(path) //nolint:wrapcheck // the caller ignores the error
}

// read reads an entry. It refuses one that belongs neither to the user of the place nor to root.
func (p place) read(path string) (entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return entry{}, err //nolint:wrapcheck // it names the file
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != p.uid && stat.Uid != 0 {
		return entry{}, fmt.Errorf("%s belongs to another user", path)
	}
	data, err := readPrivate(path, syscall.O_RDONLY|syscall.O_NOFOLLOW)
	if err != nil {
		return entry{}, err
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return entry{}, fmt.Errorf("%s is damaged; remove it, and restart its server", path)
	}
	return e, nil
}

// places returns the places that this process searches.
func places() []place {
	var found []place
	if p, err := own(); err == nil {
		found = append(found, p)
	}
	if p, ok, err := sudoer(); ok && err == nil {
		found = append(found, p)
	}
	return found
}

// lookup finds the token that a server on this machine has entered. If there is none, why is the
// reason.
func lookup(kind Kind, servers []netip.AddrPort) (t Token, e entry, why string) {
	why = fmt.Sprintf("no server at %s has entered one for this user", servers[0])
	for _, p := range places() {
		for _, server := range servers {
			path := p.path(kind, server)
			found, err := p.read(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil && !found.Process.lives() {
				why = fmt.Sprintf("%s is of a server that has ended", path)
				continue
			}
			if err == nil {
				t, err = Parse(found.Token)
			}
			switch {
			case err != nil:
				why = err.Error()
			case found.Server == server.String() && t.kind == kind:
				t.file = path
				return t, found, ""
			}
		}
	}
	return Token{}, entry{}, why
}
