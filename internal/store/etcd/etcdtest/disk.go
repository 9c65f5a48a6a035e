package etcdtest

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk stands between a member and its disk. While it is stalled, no fsync and no fdatasync of the
// member returns, as with a disk that hangs: connections stay and pings are answered, but nothing
// becomes durable.
//
// The kernel asks before each such call (seccomp, SECCOMP_RET_USER_NOTIF). A filter belongs to a
// thread and to all processes that it starts. So the member is started by a thread of its own,
// which lives as long as the member.
type disk struct {
	refused error // why it cannot be stalled; nil: it can
	ended   chan struct{}
	group   sync.WaitGroup

	mu struct {
		sync.Mutex
		free chan struct{} // closed while it is not stalled
	}
}

func newDisk() *disk {
	d := &disk{}
	d.mu.free = make(chan struct{})
	close(d.mu.free)
	return d
}

func (d *disk) stall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stalled() {
		d.mu.free = make(chan struct{})
	}
}

// release lets the disk go on, and with it the call that waits in serve.
func (d *disk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stalled() {
		close(d.mu.free)
	}
}

// stalled reports whether the disk is stalled. The caller holds the lock.
func (d *disk) stalled() bool {
	select {
	case <-d.mu.free:
		return false
	default:
		return true
	}
}

func (d *disk) isFree() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.free
}

// start starts the process of a member on the disk. Where the kernel does not allow filters, the
// process is started without one.
func (d *disk) start(cmd *exec.Cmd) error {
	began := make(chan error)
	ended := make(chan struct{})
	d.group.Go(func() {
		runtime.LockOSThread() // and never unlocks: the thread and its filter end with this goroutine
		listener, err := listen()
		if d.refused = err; err != nil {
			began <- nil
			return
		}
		d.group.Go(func() { d.serve(listener, ended) })
		if err = cmd.Start(); err != nil {
			close(ended)
		}
		began <- err
		<-ended // a process with Pdeathsig ends with the thread that started it
	})
	d.ended = ended
	err := <-began
	if d.refused != nil {
		return cmd.Start()
	}
	return err
}

// end ends what start began, behind the end of the process.
func (d *disk) end() {
	close(d.ended)
	d.group.Wait()
}

// serve lets the calls of the process go on, or wait while the disk is stalled.
func (d *disk) serve(listener int, ended <-chan struct{}) {
	defer unix.Close(listener) //nolint:errcheck // nothing is lost with it
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		n, _ := unix.Poll(fds, 50) // milliseconds; an interrupt is like no call
		select {
		case <-ended:
			return
		default:
		}
		if n <= 0 {
			continue
		}
		call := notification{}
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&call)) != nil {
			continue // the caller was interrupted; it calls again
		}
		select {
		case <-d.isFree():
		case <-ended:
		}
		answer := response{id: call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)) // the caller may be gone
	}
}

// notification is struct seccomp_notif of the kernel, and response struct seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

func ioctl(fd int, request uintptr, of unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(of)); errno != 0 {
		return errno
	}
	return nil
}

// listen makes the kernel ask before each fsync and fdatasync of the processes that this thread
// starts. It returns the descriptor at which the kernel asks.
func listen() (int, error) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("give up new privileges: %w", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, fmt.Errorf("be asked by the kernel before calls: %w", errno)
	}
	return int(fd), nil
}
