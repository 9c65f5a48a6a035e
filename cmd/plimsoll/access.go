package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// secrets are the environment variables with the server's token, or with its file.
type secrets struct{ token, file string }

// takeSecrets reads the variables. It removes the token from the environment, which child processes
// inherit.
func takeSecrets() secrets {
	const variable = "PLIMSOLL_TOKEN"
	s := secrets{os.Getenv(variable), os.Getenv("PLIMSOLL_TOKEN_FILE")}
	_ = os.Unsetenv(variable) // it fails only for an invalid name
	return s
}

// followFor is the least time for which what is followed is tried again when the server goes away:
// one that is started anew is back within it.
const followFor = time.Minute

// leaderFor is the least time for which a call is tried again that a gateway refuses because no
// coordinator leads. Another one takes over in three to five seconds.
const leaderFor = 10 * time.Second

// toldBroken returns a function that says that the server has gone away. It says so once for breaks
// that come together, as those of several logs.
func (a *app) toldBroken() func(error) {
	var told struct {
		sync.Mutex
		at time.Time
	}
	return func(err error) {
		told.Lock()
		defer told.Unlock()
		if now := time.Now(); now.Sub(told.at) > brokenPause {
			told.at = now
			a.notes.printf("plimsoll: the connection is lost (%s); it is tried again for %s\n", oneLine(cause(err)),
				max(a.retryFor, followFor))
		}
	}
}

// brokenPause is the least time between two notes about a lost connection.
const brokenPause = 5 * time.Second

// clientConfig chooses the gateway and its token. The token is that of the flag, or else that of
// the variables; without both, the client looks for one.
func (a *app) clientConfig() client.Config {
	cfg := client.Config{Server: a.server, RetryBudget: a.retryFor, Consistency: a.consistency}
	if cfg.RetryBudget == 0 {
		cfg.RetryBudget = -1
	}
	switch {
	case a.tokenFile != "":
		cfg.TokenFile = a.tokenFile
	case a.secrets.token != "":
		cfg.Token = a.secrets.token
	default:
		cfg.TokenFile = a.secrets.file
	}
	return cfg
}

// tokenSource names the flag or variable that the client's token is from; empty if there is none.
func (a *app) tokenSource() string {
	switch {
	case a.tokenFile != "":
		return "--token-file"
	case a.secrets.token != "":
		return "PLIMSOLL_TOKEN"
	case a.secrets.file != "":
		return "PLIMSOLL_TOKEN_FILE"
	}
	return ""
}

// source returns the source of the gateway's token, or of the first gateway's; nil if none is
// known.
func (a *app) source() (*token.Source, error) {
	cfg := a.clientConfig()
	if cfg.Token == "" {
		first, _, _ := strings.Cut(a.server, ",")
		return token.Finder{Kind: token.User, File: cfg.TokenFile}.For(first), nil
	}
	t, err := token.Parse(cfg.Token)
	if err != nil {
		return nil, plimsoll.Invalid("PLIMSOLL_TOKEN", "%v", err)
	}
	return token.Fixed(t, "PLIMSOLL_TOKEN"), nil
}

type tokenCmd struct {
	Header bool `help:"Print the header of a request instead, for curl."`
}

// Help is the detail of the help text.
func (tokenCmd) Help() string {
	return example("plimsoll token", "curl -H @<(plimsoll token --header) http://127.0.0.1:9080/ws/v1/events/batch")
}

// Run prints the file that holds the token of the server, or a header with it.
func (cmd *tokenCmd) Run(_ context.Context, a *app) error {
	source, err := a.source()
	if err != nil {
		return err
	}
	if source == nil {
		return plimsoll.Errorf(plimsoll.CodeUnauthenticated, "no token is known for %s: tokens are found for servers on this machine alone; give it by %s",
			a.server, token.User.GivenBy())
	}
	file, err := source.ServerFile()
	if err != nil && (!cmd.Header || plimsoll.CodeOf(err) != plimsoll.CodeNotFound) {
		return err
	}
	if !cmd.Header {
		a.out.printf("%s\n", file)
		return nil
	}
	t, _, err := source.Get()
	if err != nil {
		return err
	}
	a.out.printf("Authorization: %s\n", t.Header())
	return nil
}

// roleNames are the commands of roles. A role checks the tokens of its callers and sends none
// itself.
var roleNames = []string{"dev", "coordinator", "gateway", "agent", "evaluator"}

// noTokenFlag belongs to every role that can listen on a port.
type noTokenFlag struct {
	NoToken bool `help:"Answer all callers of --listen, without a token."`
}

// gatewayTokenFlags belong to the roles that users and agents call.
type gatewayTokenFlags struct {
	noTokenFlag
	OpenWS         bool   `name:"open-ws" help:"Answer GET under /ws/v1, and of /debug/fullstatedump, without a token."`
	WSEventState   bool   `name:"ws-event-state" help:"Give each event under /ws/v1 the state of its object, as unicorn-history-server reads it. An event is then several times as large."`
	UserTokenFile  string `help:"File with the token of users, made if it is not there; default: user.token in --data." env:"PLIMSOLL_USER_TOKEN_FILE" placeholder:"FILE"`
	AgentTokenFile string `help:"File with the token of agents, made if it is not there; default: agent.token in --data." env:"PLIMSOLL_AGENT_TOKEN_FILE" placeholder:"FILE"`
}

// listensOnPort reports whether an address is a TCP port, where callers need a token.
func listensOnPort(address string) bool {
	network, _, err := transport.Split(address)
	return err == nil && network == "tcp"
}

// warnOpen warns about callers that are answered without a token, also at a low log level.
func warnOpen(a *app, log *slog.Logger, listen string, noToken, openWS bool) {
	if !listensOnPort(listen) {
		return
	}
	say := func(flag, who string) {
		if log.Enabled(context.Background(), slog.LevelWarn) {
			log.Warn(flag+": "+who, "listen", listen)
			return
		}
		a.notes.printf("plimsoll: %s: %s (%s)\n", flag, who, listen)
	}
	if noToken {
		say("--no-token", "everybody who reaches the address may do everything there, without a token")
	}
	if openWS {
		say("--open-ws", "everybody who reaches the address may read events, jobs, nodes and queues under /ws/v1, without a token")
	}
}

// access returns the access rules of a gateway; nil if it listens on a socket.
func (cmd *gatewayCmd) access(a *app, log *slog.Logger) *transport.Access {
	if !listensOnPort(cmd.Listen) {
		return nil
	}
	warnOpen(a, log, cmd.Listen, cmd.NoToken, cmd.OpenWS)
	return dev.AccessConfig{NoToken: cmd.NoToken, OpenWS: cmd.OpenWS, Logger: log}.GatewayAccess(
		cmp.Or(cmd.UserTokenFile, filepath.Join(cmd.Data, token.User.FileName())),
		cmp.Or(cmd.AgentTokenFile, filepath.Join(cmd.Data, token.Agent.FileName())),
	)
}

// access returns the access rules of a listener that gateways call; nil if it is a socket.
func (f *noTokenFlag) access(
	a *app, log *slog.Logger, listen string, kind token.Kind, file, data string,
) *transport.Access {
	if !listensOnPort(listen) {
		return nil
	}
	warnOpen(a, log, listen, f.NoToken, false)
	return dev.AccessConfig{NoToken: f.NoToken, Logger: log}.Access(
		kind, cmp.Or(file, filepath.Join(data, kind.FileName())),
	)
}
