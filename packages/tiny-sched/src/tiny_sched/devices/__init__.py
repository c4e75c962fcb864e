"""Values on several devices: rules that give each device its graph, and collectives between processes."""
