"""The engine: contracts, rules, typed errors, plan and launch, backends. It knows no operator."""
