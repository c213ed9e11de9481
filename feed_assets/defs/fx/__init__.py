"""Exchange rates of the euro."""
