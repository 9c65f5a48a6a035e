package dev

import (
	"cmp"
	"log/slog"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// openPath is what OpenWS opens.
const openPath = "/ws/v1/"

// AccessConfig says whom a role's listener answers.
type AccessConfig struct {
	NoToken bool         // everybody
	OpenWS  bool         // everybody who reads the REST interface
	Logger  *slog.Logger // is told if callers on this machine cannot find the tokens
}

func (c AccessConfig) access(grants func() ([]transport.Grant, error)) *transport.Access {
	cfg := transport.AccessConfig{Grants: grants, NoToken: c.NoToken, Trouble: func(err error) {
		c.Logger.Warn(
			"callers on this machine have to be given the token, because it could not be entered for them", "err", err,
		)
	}}
	if c.OpenWS {
		cfg.Open = openPath
	}
	return transport.NewAccess(cfg)
}

// GatewayAccess makes the tokens of users and agents in their files, or reads them, when a gateway
// is served.
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
	})
}

// Access makes the token of a listener of gateways in its file, or reads it, when that is served:
// of a coordinator or of an agent.
func (c AccessConfig) Access(kind token.Kind, file string) *transport.Access {
	return c.access(func() ([]transport.Grant, error) {
		made, err := token.Make(kind, file)
		return []transport.Grant{{Token: made, Caller: transport.CallerGateway}}, err
	})
}

// makeAccess says who may call the gateway, and which token its own agent sends: one that nobody
// else has where nobody needs one, so that the gateway knows it from users.
func (d *Dev) makeAccess() {
	cfg := &d.cfg
	access := AccessConfig{NoToken: cfg.NoToken, OpenWS: cfg.OpenWS, Logger: cfg.Logger}
	if d.listener.Addr().Network() == "unix" {
		user, agent := token.New(token.User), token.New(token.Agent)
		cfg.Gateway.Access = access.access(
			func() ([]transport.Grant, error) { return gateway.Grants(user, agent), nil },
		)
		d.agentToken = token.Fixed(agent, "the token of this process")
		return
	}
	cfg.UserTokenFile = cmp.Or(cfg.UserTokenFile, filepath.Join(cfg.Data, token.User.FileName()))
	cfg.AgentTokenFile = cmp.Or(cfg.AgentTokenFile, filepath.Join(cfg.Data, token.Agent.FileName()))
	cfg.Gateway.Access = access.GatewayAccess(cfg.UserTokenFile, cfg.AgentTokenFile)
	d.agentToken = token.Finder{Kind: token.Agent, File: cfg.AgentTokenFile}.For(cfg.Listen)
}
