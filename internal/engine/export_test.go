package engine

import "github.com/plimsoll-dev/plimsoll/internal/scheduler"

// View answers questions from the state itself.
func (e *Engine) View() *scheduler.View { return e.scheduler.View(e.state) }
