package dev

import (
	"log/slog"

	"github.com/plimsoll-dev/plimsoll/internal/evaluator"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// EvaluatorEvents logs the events of an evaluator.
func EvaluatorEvents(log *slog.Logger) evaluator.Events {
	return evaluator.Events{
		Serving: func(address string, servers int) { log.Info("serving", "address", address, "servers", servers) },
		Fault:   func(err error) { log.Error("fault", "error", err) },
	}
}

// EvaluatorAccess returns the access of an evaluator. When the evaluator is served, its token is
// read from the file, or made there.
func (c AccessConfig) EvaluatorAccess(file string) *transport.Access {
	return c.access(func() ([]transport.Grant, error) {
		made, err := token.Make(token.Evaluator, file)
		return []transport.Grant{{Token: made, Caller: transport.CallerUser}}, err
	}, "")
}
