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

	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// maxOutput is how much a command may print; what it prints is one number.
const maxOutput = 4 << 10

// command measures by running a program that prints a number. It is run without a shell, in a
// process group of its own that is killed when the time is up, with an empty input and the
// environment PATH alone, and with the rights of the agent.
func command(line []string) func(ctx context.Context, _ *nodeqos.Task) (float64, bool, error) {
	return func(ctx context.Context, _ *nodeqos.Task) (float64, bool, error) {
		var out, problems bounded
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		cmd.Stdout, cmd.Stderr = &out, &problems
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = 100 * time.Millisecond // for a descendant that left the process group and keeps the output open
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return 0, true, fmt.Errorf("%s: %w%s", line[0], err, problems.told())
		}
		if out.over {
			return 0, true, fmt.Errorf("%s printed more than %d bytes; it must print one number", line[0], maxOutput)
		}
		text := strings.TrimSpace(out.text.String())
		value, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, true, fmt.Errorf("%s printed %q; it must print one number", line[0], cut(text, 60))
		}
		return value, true, nil
	}
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	text bytes.Buffer
	over bool
}

// Write takes everything, so that the writer is not disturbed.
func (b *bounded) Write(p []byte) (int, error) {
	room := maxOutput - b.text.Len()
	if len(p) > room {
		b.over = true
	}
	return len(p), ignoreCount(b.text.Write(p[:min(len(p), room)]))
}

func ignoreCount(_ int, err error) error { return err }

// told returns the first line of it, to be put behind an error.
func (b *bounded) told() string {
	line, _, _ := strings.Cut(strings.TrimSpace(b.text.String()), "\n")
	if line == "" {
		return ""
	}
	return ": " + cut(line, 200)
}

// cut returns the first bytes of a text, as valid UTF-8.
func cut(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "?")
}
