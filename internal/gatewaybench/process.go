package gatewaybench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a server process.
type process struct {
	address string
	pid     int
	in      io.Closer // its end ends the process
	cmd     *exec.Cmd
	drained chan struct{} // closed when the process has closed its output
}

const (
	startTimeout = 30 * time.Second
	endTimeout   = 5 * time.Second
)

// start starts a server, and returns once it serves. It is in a process group of its own, so that a
// Ctrl-C ends it only by way of this process.
func start(ctx context.Context, server []string, args ...string) (*process, error) {
	args = append(slices.Clone(server[1:]), args...)
	cmd := exec.Command(server[0], args...) //nolint:gosec,noctx // the caller's own command; it ends with its input
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, in: in, cmd: cmd, drained: make(chan struct{})}
	told := make(chan string, 1)
	go func() { // it ends with the process
		defer close(p.drained)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if address, ok := strings.CutPrefix(lines.Text(), announced); ok {
				select {
				case told <- address:
				default: // it was told before
				}
			}
		}
	}()
	select {
	case p.address = <-told:
		return p, nil
	case <-p.drained:
		err = errors.New("the server ended before it served")
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startTimeout):
		err = fmt.Errorf("the server did not serve within %s", startTimeout)
	}
	return nil, errors.Join(fmt.Errorf("start %s: %w", strings.Join(args, " "), err), p.stop())
}

// stop ends the process.
func (p *process) stop() error {
	_ = p.in.Close() // the process may be gone
	late := time.AfterFunc(endTimeout, func() { _ = p.cmd.Process.Kill() })
	<-p.drained
	err := p.cmd.Wait()
	late.Stop()
	if err != nil {
		return fmt.Errorf("a server ended with %w", err)
	}
	return nil
}

// processorTime returns the processor time that the process has taken, to the nanosecond.
func (p *process) processorTime() (time.Duration, error) {
	var took unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid<<3|2), &took); err != nil { // clock_getcpuclockid(3)
		return 0, fmt.Errorf("read the processor time of process %d: %w", p.pid, err)
	}
	return time.Duration(took.Nano()), nil
}
