package metricfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// maxOutput bounds the output of a command, which is a single number.
const maxOutput = 4 << 10

// command measures by running a program that prints a number. It runs without a shell and with the
// rights of the agent. Its input is empty, and its environment is PATH alone. It has a process
// group of its own, which is killed when the time is up.
func command(line []string) func(ctx context.Context, _ *nodeqos.Task) (float64, bool, error) {
	return func(ctx context.Context, _ *nodeqos.Task) (float64, bool, error) {
		var out, problems bounded
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		cmd.Stdout, cmd.Stderr = &out, &problems
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		// A descendant may have left the process group and may keep the output open.
		cmd.WaitDelay = 100 * time.Millisecond
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return 0, true, fmt.Errorf("%s: %w%s", line[0], err, problems.firstLine())
		}
		if out.over {
			return 0, true, fmt.Errorf("%s printed more than %d bytes; it must print one number", line[0], maxOutput)
		}
		text := strings.TrimSpace(out.text.String())
		value, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, true, fmt.Errorf("%s printed %q; it must print one number", line[0], plimsoll.Shorten(text))
		}
		return value, true, nil
	}
}

// bounded keeps the beginning of the text written to it.
type bounded struct {
	text bytes.Buffer
	over bool
}

// Write accepts all of p, so that the writer does not fail.
func (b *bounded) Write(p []byte) (int, error) {
	room := maxOutput - b.text.Len()
	if len(p) > room {
		b.over = true
	}
	return len(p), ignoreCount(b.text.Write(p[:min(len(p), room)]))
}

func ignoreCount(_ int, err error) error { return err }

// firstLine returns the first line of the text, for an error.
func (b *bounded) firstLine() string {
	line, _, _ := strings.Cut(strings.TrimSpace(b.text.String()), "\n")
	if line == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(line[:min(len(line), 200)], "?")
}
