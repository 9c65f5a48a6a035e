package gateway

import (
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// agentPaths is the common prefix of the paths that only agents call.
const agentPaths = "/" + plimsollv1connect.AgentServiceName + "/"

// Grants returns the rights of the two tokens at a gateway. The agents' token opens AgentService
// alone; the users' token opens everything else.
func Grants(user, agent token.Token) []transport.Grant {
	ofAgents := func(path string) bool { return strings.HasPrefix(path, agentPaths) }
	return []transport.Grant{
		{Token: user, Caller: transport.CallerUser, Paths: func(path string) bool { return !ofAgents(path) }},
		{Token: agent, Caller: transport.CallerAgent, Paths: ofAgents},
	}
}

// agentDenied is the error for a user when an agent did not take this gateway's token. The user
// cannot mend that, so the agent's own error is not passed on.
func agentDenied(node, address string, err error) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeConflict,
		Msg: "the agent of node " + node + " at " + address + " does not let this gateway in; " +
			"start the gateway with --log-token-file and a copy of that agent's file log.token",
		Err: err,
	}
}
