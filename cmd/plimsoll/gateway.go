package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/token"
)

type gatewayCmd struct {
	roleFlags
	hostFlags
	ID       string `help:"Name of this gateway, unique among all; default: host name and process id." env:"PLIMSOLL_GATEWAY" placeholder:"ID"`
	Data     string `help:"Directory of the tokens." default:"plimsoll-data/gateway" env:"PLIMSOLL_DATA"`
	Listen   string `help:"Address to serve." default:"127.0.0.1:9080" env:"PLIMSOLL_LISTEN"`
	Leader   string `help:"Address of the coordinator, or of another gateway's --listen-replication. Separate several by commas, or write dns:NAME:PORT for all addresses of a name: the one that leads is found. Not with --etcd. Default: 127.0.0.1:9081." env:"PLIMSOLL_LEADER" placeholder:"ADDRESS"`
	Insecure bool   `help:"Allow an address that other machines can reach, although nothing is encrypted."`
	etcdFlags

	gatewayTokenFlags
	GatewayTokenFile string `help:"File with the token of gateways, from the coordinator; default: found if it is on this machine." env:"PLIMSOLL_GATEWAY_TOKEN_FILE" placeholder:"FILE"`
	LogTokenFile     string `help:"File with the token of the agents' ports; default: found for agents on this machine." env:"PLIMSOLL_LOG_TOKEN_FILE" placeholder:"FILE"`
	connectionFlags
	copyFlags
	archiveReadFlags
	ListenAgents string `help:"Further address, for agents alone: its slots and connections cannot be taken by users." env:"PLIMSOLL_LISTEN_AGENTS" placeholder:"ADDRESS"`
	agentAddressFlags
	ListenReplication    string `help:"Further address, for gateways that follow this one instead of the coordinator." env:"PLIMSOLL_LISTEN_REPLICATION" placeholder:"ADDRESS"`
	ReplicationTokenFile string `help:"File with the token of these gateways, made if it is not there; default: gateway.token in --data." env:"PLIMSOLL_REPLICATION_TOKEN_FILE" placeholder:"FILE"`
}

// Help is the detail of the help text.
func (gatewayCmd) Help() string {
	return example("plimsoll gateway --leader 127.0.0.1:9081 --listen 127.0.0.1:9080",
		"plimsoll gateway --leader 10.0.0.1:9081 --gateway-token-file gateway.token --log-token-file log.token",
		"plimsoll gateway --listen 127.0.0.1:9080 --listen-agents 127.0.0.1:9082",
		"plimsoll gateway --listen-replication 127.0.0.1:9083",
		"plimsoll gateway --leader 10.0.0.1:9081,10.0.0.2:9081,10.0.0.3:9081",
		"plimsoll gateway --leader 127.0.0.1:9083 --listen 127.0.0.1:9084 --data plimsoll-data/gateway-2",
		"plimsoll gateway --leader 10.0.0.1:9081 --listen 10.0.0.2:9080 --insecure --agent-addresses 10.0.0.0/8")
}

// Run serves until it is stopped.
func (cmd *gatewayCmd) Run(ctx context.Context, a *app) error {
	if err := checkListen(cmd.Listen, cmd.Insecure); err != nil {
		return err
	}
	agents, err := cmd.agentNetworks()
	if err != nil {
		return err
	}
	log := cmd.logger()
	if cmd.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the host's name: %w; give one with --id", err)
		}
		cmd.ID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	following := replica.FollowerConfig{
		Gateway: cmd.ID, Tokens: token.Finder{Kind: token.Gateway, File: cmd.GatewayTokenFile},
		Version: buildVersion().Version, Events: dev.FollowerEvents(log),
	}
	end, err := cmd.find(&following, log)
	if err != nil {
		return err
	}
	cfg := gateway.Config{
		ID: cmd.ID, Listen: cmd.Listen, Hosts: cmd.Host, Insecure: cmd.Insecure, Events: dev.GatewayEvents(log),
		Access: cmd.access(a, log), LogTokens: token.Finder{Kind: token.Log, File: cmd.LogTokenFile, PerServer: true},
		ListenAgents: cmd.ListenAgents, EventStates: cmd.WSEventState, AgentAddresses: agents,
		Version: following.Version,
	}
	if err := cmd.bound(&cfg); err != nil {
		return err
	}
	if err := cmd.apply(&following, &cfg); err != nil {
		return err
	}
	follower, err := replica.NewFollower(following)
	if err != nil {
		return err
	}
	if err := cmd.relay(&cfg, follower, log); err != nil {
		return err
	}
	archived := cmd.reader(cmd.Data)
	cfg.Archive = archived
	return errors.Join(serveGateway(ctx, cfg, follower), archived.Close(), end())
}

// defaultLeader is the address of a coordinator on the same machine.
const defaultLeader = "127.0.0.1:9081"

// find sets how the leader is found. The returned function ends the connections for that, of which
// there are none yet.
func (cmd *gatewayCmd) find(c *replica.FollowerConfig, log *slog.Logger) (end func() error, err error) {
	if !cmd.used() {
		c.Leader = cmp.Or(cmd.Leader, defaultLeader)
		return func() error { return nil }, nil
	}
	if cmd.Leader != "" {
		return nil, plimsoll.Invalid("--leader", "and --etcd both say where the leader is found; give one of them")
	}
	config, err := cmd.config(log)
	f := &etcdFinder{config: config}
	c.Finder = f
	return f.Close, err
}

// serveGateway serves a gateway until its context ends.
func serveGateway(ctx context.Context, cfg gateway.Config, follower *replica.Follower) error {
	g, err := gateway.New(cfg, follower)
	if err != nil {
		return err
	}
	listeners, err := g.Listen()
	if err != nil {
		return err // fail before the leader sees this gateway
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return follower.Run(ctx) })
	group.Go(func() error { return g.Serve(ctx, listeners) })
	return group.Wait()
}

// relay has the gateway serve others that follow it, if --listen-replication is given. They need a
// token also where users need none.
func (cmd *gatewayCmd) relay(cfg *gateway.Config, follower *replica.Follower, log *slog.Logger) (err error) {
	if cfg.ListenReplication = cmd.ListenReplication; cmd.ListenReplication == "" {
		return nil
	}
	if listensOnPort(cmd.ListenReplication) {
		cfg.ReplicationAccess = dev.AccessConfig{Logger: log}.Access(
			token.Gateway, cmp.Or(cmd.ReplicationTokenFile, filepath.Join(cmd.Data, token.Gateway.FileName())),
		)
	}
	cfg.Relay, err = replica.NewRelay(follower, replica.RelayConfig{Events: dev.RelayEvents(log)})
	return err
}
