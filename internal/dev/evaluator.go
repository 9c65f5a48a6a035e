package dev

import (
	"log/slog"

	"github.com/plimsoll-dev/plimsoll/internal/evaluator"
	"github.com/plimsoll-dev/plimsoll/internal/token"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// EvaluatorEvents logs what happens in an evaluator.
func EvaluatorEvents(log *slog.Logger) evaluator.Events {
	return evaluator.Events{
		Serving: func(address string, servers int) { log.Info("serving", "address", address, "servers", servers) },
		Fault:   func(err error) { log.Error("fault", "error", err) },
	}
}

// EvaluatorAccess makes the token of an evaluator in its file, or reads it, when that is served.
func (c AccessConfig) EvaluatorAccess(file string) *transport.Access {
	return c.access(func() ([]transport.Grant, error) {
		made, err := token.Make(token.Evaluator, file)
		return []transport.Grant{{Token: made, Caller: transport.CallerUser}}, err
	})
}
