package main

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/evaluator"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
	"github.com/plimsoll-dev/plimsoll/placement/remote"
)

type evaluatorCmd struct {
	roleFlags
	hostFlags
	Servers        string `help:"File or URL with the servers of this part, in JSON. Triton's records are understood too." env:"PLIMSOLL_EVALUATOR_SERVERS" placeholder:"FILE|URL"`
	Instances      string `help:"File or URL with the instances of one server, with {server} for its id; default: --servers has them." placeholder:"FILE|URL"`
	TritonDefaults string `help:"JSON file with the defaults of Triton's designation." placeholder:"FILE"`

	Refresh     time.Duration `help:"How old the answer of a --servers with a URL may be." default:"10s"`
	Loads       int           `help:"Number of servers whose instances are loaded at a time." default:"16" placeholder:"N"`
	LoadTimeout time.Duration `help:"Longest time to load the instances of one server." default:"2s"`

	Data     string `help:"Directory of the token." default:"plimsoll-data/evaluator" env:"PLIMSOLL_DATA"`
	Listen   string `help:"Address to serve: host:port or unix:/path." default:"127.0.0.1:9083" env:"PLIMSOLL_LISTEN"`
	Insecure bool   `help:"Allow an address that other machines can reach, although nothing is encrypted."`
	noTokenFlag
	EvaluatorTokenFile string `help:"File with the token of callers, made if it is not there; default: evaluator.token in --data." env:"PLIMSOLL_EVALUATOR_TOKEN_FILE" placeholder:"FILE"`
}

// Help is the detail of the help text.
func (evaluatorCmd) Help() string {
	return `An evaluator runs next to the data of a part of a fleet. It lists its servers, evaluates batches
of them, counts the spread of a group over them, and reports the room on each. The instances on
its servers stay with it. plimsoll place --evaluators places tasks over several evaluators.

The instances of all servers stand in the document of --servers. Otherwise --instances names the
place of the instances of one server. They are then loaded only when a batch needs them, and a
server that takes longer than --load-timeout is left out of that batch. A file is read again when
it has changed. With --triton-defaults, the over-provisioning there holds for all of Triton's
records.

` + example("plimsoll evaluator --servers servers.json",
		"plimsoll evaluator --servers servers.json --instances 'instances/{server}.json' --listen 127.0.0.1:9084",
		"plimsoll evaluator --servers http://cnapi/servers --instances 'http://vmapi/vms?server_uuid={server}'",
		"plimsoll place job.yaml --evaluators 127.0.0.1:9083,127.0.0.1:9084")
}

// Run serves until it is told to stop.
func (cmd *evaluatorCmd) Run(ctx context.Context, a *app) error {
	if err := checkListen(cmd.Listen, cmd.Insecure); err != nil {
		return err
	}
	if cmd.Loads < 0 || cmd.LoadTimeout < 0 {
		return plimsoll.Invalid("--loads", "and --load-timeout cannot be negative")
	}
	defaults, err := readDefaults(a, cmd.TritonDefaults)
	if err != nil {
		return err
	}
	log := cmd.logger()
	e, err := evaluator.New(evaluator.Config{
		Servers: cmd.Servers, Instances: cmd.Instances, Defaults: defaults, Now: a.now, Refresh: cmd.Refresh,
		Loads:  remote.Options{Parallel: cmd.Loads, Timeout: cmd.LoadTimeout},
		Listen: cmd.Listen, Hosts: cmd.Host, Access: cmd.access(a, log), Events: dev.EvaluatorEvents(log),
	})
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// access returns the access rules of an evaluator; nil if it listens on a socket.
func (cmd *evaluatorCmd) access(a *app, log *slog.Logger) *transport.Access {
	if !listensOnPort(cmd.Listen) {
		return nil
	}
	warnOpen(a, log, cmd.Listen, cmd.NoToken, false)
	file := cmp.Or(cmd.EvaluatorTokenFile, filepath.Join(cmd.Data, token.Evaluator.FileName()))
	return dev.AccessConfig{NoToken: cmd.NoToken, Logger: log}.EvaluatorAccess(file)
}

// readDefaults reads the defaults of Triton's designation, if a file is named.
func readDefaults(a *app, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	_, data, err := a.readFile(path)
	return data, err
}
