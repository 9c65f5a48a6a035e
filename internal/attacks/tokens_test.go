package attacks

import "testing"

func (f *fleet) userToken(t testing.TB) string   { return "" }
func (f *fleet) agentToken(t testing.TB) string  { return "" }
func (f *fleet) leaderToken(t testing.TB) string { return "" }
