package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/config"
)

// app is the state that commands share: the streams, the terminal and the client of the gateway.
type app struct {
	in       io.Reader
	out      *output                    // results
	notes    *output                    // progress and errors
	live     bool                       // notes is a terminal, on which a line can be rewritten
	line     lineTerminal               // that terminal
	screen   func() (width, height int) // size of the terminal that out is; nil: out is no terminal
	color    bool                       // out may be coloured
	now      func() time.Time
	server   string
	retryFor time.Duration

	consistency plimsoll.Consistency // of reads

	unread func() int // see process.unread

	tokenFile string         // from --token-file
	secrets   secrets        // from the environment
	c         *client.Client // nil before the first use
}

// client returns the client of the gateway that the command line names. Streams that it follows,
// and calls that a server refuses for now, are tried again for longer than other calls, unless
// --retry-for is 0.
func (a *app) client() (*client.Client, error) {
	cfg := a.clientConfig()
	if a.retryFor > 0 {
		cfg.LeaderBudget = leaderFor
		cfg.FollowBudget, cfg.Broken = max(a.retryFor, followFor), a.toldBroken()
	}
	return a.connect(cfg)
}

// connect is client with a configuration.
func (a *app) connect(cfg client.Config) (*client.Client, error) {
	if a.c != nil {
		return a.c, nil
	}
	c, err := client.New(cfg)
	var invalid *plimsoll.Error
	if errors.As(err, &invalid) && invalid.Field == "token" {
		return nil, plimsoll.Invalid("PLIMSOLL_TOKEN", "%s", invalid.Msg)
	}
	if err != nil {
		return nil, err
	}
	a.c = c
	return c, nil
}

func (a *app) close() {
	if a.c != nil {
		a.c.Close()
	}
}

// explainError returns the text of an error, with a remedy where the error itself cannot know one.
func (a *app) explainError(err error) string {
	var dial *net.OpError
	asked := a.c != nil // a command that asks no gateway calls another process
	if asked && plimsoll.CodeOf(err) == plimsoll.CodeUnavailable && errors.As(err, &dial) && dial.Op == "dial" {
		servers := strings.Join(strings.Split(a.server, ","), " or ")
		return fmt.Sprintf("cannot reach a server at %s (%s); start one with: plimsoll dev", servers, cause(dial.Err))
	}
	if from := a.tokenSource(); plimsoll.CodeOf(err) == plimsoll.CodeUnauthenticated && from != "" {
		return fmt.Sprintf("%s; the token is that of %s", err, from)
	}
	return err.Error()
}

func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// readFile reads a file that may be too large to be read whole; "-" is stdin.
func (a *app) readFile(path string) (name string, data []byte, err error) {
	in, name := a.in, "stdin"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", nil, &plimsoll.Error{Code: plimsoll.CodeInvalid, Op: "read " + path, Msg: cause(err)}
		}
		defer func() { _ = f.Close() }() // it was only read
		in, name = f, path
	}
	data, err = io.ReadAll(io.LimitReader(in, config.MaxFileBytes+1))
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %s", path, cause(err))
	}
	return name, data, nil
}

// owner returns the name of the current user: the owner of a job whose file names none.
func owner() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return os.Getenv("USER")
}

// example returns the detail of a help text: command lines to copy.
func example(lines ...string) string {
	if len(lines) > 1 {
		return "Examples:\n\n  " + strings.Join(lines, "\n  ")
	}
	return "Example:\n\n  " + lines[0]
}
