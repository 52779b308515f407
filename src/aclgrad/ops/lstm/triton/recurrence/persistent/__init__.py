"""One launch for all steps: a persistent grid whose programs exchange what a step leaves."""
