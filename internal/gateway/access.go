package gateway

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// agentPaths is the beginning of the paths that are for agents alone.
const agentPaths = "/" + plimsollv1connect.AgentServiceName + "/"

// Grants are what the holders of tokens may do at a gateway: agents call their own service, which
// no user needs, and nothing else.
func Grants(user, agent token.Token) []transport.Grant {
	ofAgents := func(path string) bool { return strings.HasPrefix(path, agentPaths) }
	return []transport.Grant{
		{Token: user, Caller: transport.CallerUser, Paths: func(path string) bool { return !ofAgents(path) }},
		{Token: agent, Caller: transport.CallerAgent, Paths: ofAgents},
	}
}

// notLetIn is the error for a user when an agent did not take this gateway's token. The user cannot
// mend that, so it is not the error of the agent.
func notLetIn(node, address string, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeConflict,
		Msg: "the agent of node " + node + " at " + address + " does not let this gateway in; " +
			"start the gateway with --log-token-file and a copy of that agent's file log.token",
		Err: err,
	}
}
