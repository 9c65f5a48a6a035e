package dev

import (
	"cmp"
	"log/slog"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll/internal/apidoc"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/rest"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// AccessConfig chooses the callers that a role's listener answers.
type AccessConfig struct {
	NoToken bool         // answer every caller
	OpenWS  bool         // answer every caller that reads the REST interface
	Logger  *slog.Logger // gets a line if callers on this machine cannot find the tokens
}

// access returns the access of a listener with the given tokens and pages.
func (c AccessConfig) access(grants func() ([]transport.Grant, error), pages string) *transport.Access {
	cfg := transport.AccessConfig{Grants: grants, NoToken: c.NoToken, Pages: pages, Trouble: func(err error) {
		c.Logger.Warn(
			"callers on this machine have to be given the token, because it could not be entered for them", "err", err,
		)
	}}
	if c.OpenWS {
		cfg.Open = rest.Paths()
	}
	return transport.NewAccess(cfg)
}

// GatewayAccess returns the access of a gateway. When the gateway is served, the tokens of users
// and agents are read from their files, or made there.
func (c AccessConfig) GatewayAccess(userFile, agentFile string) *transport.Access {
	return c.access(func() ([]transport.Grant, error) {
		user, err := token.Make(token.User, userFile)
		if err != nil {
			return nil, err
		}
		agent, err := token.Make(token.Agent, agentFile)
		if err != nil {
			return nil, err
		}
		return gateway.Grants(user, agent), nil
	}, apidoc.Root)
}

// Access returns the access of a listener that gateways call: of a coordinator or of an agent. When
// the listener is served, its token is read from the file, or made there.
func (c AccessConfig) Access(kind token.Kind, file string) *transport.Access {
	return c.access(func() ([]transport.Grant, error) {
		made, err := token.Make(kind, file)
		return []transport.Grant{{Token: made, Caller: transport.CallerGateway}}, err
	}, "")
}

// makeAccess sets the access of the gateway and the token of its own agent. On a socket, where
// nobody needs a token, the agent's token is one that no other process has: by it the gateway knows
// the agent from users.
func (d *Dev) makeAccess() {
	cfg := &d.cfg
	access := AccessConfig{NoToken: cfg.NoToken, OpenWS: cfg.OpenWS, Logger: cfg.Logger}
	if d.listener.Addr().Network() == "unix" {
		user, agent := token.New(token.User), token.New(token.Agent)
		cfg.Gateway.Access = access.access(
			func() ([]transport.Grant, error) { return gateway.Grants(user, agent), nil }, apidoc.Root,
		)
		d.agentToken = token.Fixed(agent, "the token of this process")
		return
	}
	cfg.UserTokenFile = cmp.Or(cfg.UserTokenFile, filepath.Join(cfg.Data, token.User.FileName()))
	cfg.AgentTokenFile = cmp.Or(cfg.AgentTokenFile, filepath.Join(cfg.Data, token.Agent.FileName()))
	cfg.Gateway.Access = access.GatewayAccess(cfg.UserTokenFile, cfg.AgentTokenFile)
	d.agentToken = token.Finder{Kind: token.Agent, File: cfg.AgentTokenFile}.For(cfg.Listen)
}
